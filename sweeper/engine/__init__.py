"""SGLang's words: argv, wire formats, silent rules, layer conventions by version and family. Pure."""
