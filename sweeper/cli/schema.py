"""`sweeper schema`: the JSON Schema of experiment files, for editors."""

import click


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of experiment files.

    In an editor with a YAML language server, put `# yaml-language-server: $schema=experiment.schema.json` on the first
    line of the experiment.
    """
    import json

    from sweeper.core.experiment import Experiment

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Experiment.model_json_schema()}
    click.echo(json.dumps(schema, ensure_ascii=False, indent=1))
    return 0
