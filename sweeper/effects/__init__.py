"""Each file one device: GPU, process, server, HTTP, prompts, environment."""
