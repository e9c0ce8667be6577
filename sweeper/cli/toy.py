"""`sweeper toy`: the shipped target and draft as a folder."""

from pathlib import Path

import click


@click.command("toy")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> int:
    """Unpack the tiny trained target, its EAGLE3 draft and prompts into FOLDER."""
    from sweeper.errors import PreflightError
    from sweeper.toy import unpack

    try:
        pair = unpack(folder)
    except OSError as error:
        raise PreflightError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
    click.echo(f"target   {pair.target}\ndraft    {pair.draft}\nprompts  {pair.prompts}")
    return 0
