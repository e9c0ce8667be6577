"""The nightly job: measure, compare with the history, say one sentence, keep everything that is needed tomorrow."""
