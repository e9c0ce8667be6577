"""`sweeper toy`: the shipped target and draft as a folder."""

from pathlib import Path

import click


@click.command("toy")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--spoilt", is_flag=True, help="Also write drafts with one fault each, for experiments/wiring_story.yaml."
)
def command(folder: Path, spoilt: bool) -> int:
    """Unpack the tiny trained target, its EAGLE3 draft and prompts into FOLDER."""
    from sweeper.errors import PreflightError
    from sweeper.toy import unpack

    try:
        pair = unpack(folder)
        if spoilt:
            from sweeper.toy.spoilt import write_spoilt

            for made in write_spoilt(pair.draft, folder / "spoilt"):
                click.echo(f"spoilt   {made}")
    except OSError as error:
        raise PreflightError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
    click.echo(f"target   {pair.target}\ndraft    {pair.draft}\nprompts  {pair.prompts}")
    return 0
