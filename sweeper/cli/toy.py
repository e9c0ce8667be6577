"""`sweeper toy`: the shipped target and draft as a folder."""

from pathlib import Path

import click


@click.command("toy")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--spoilt", is_flag=True, help="Also write drafts with one fault each, for experiments/wiring_story.yaml."
)
@click.option(
    "--dumps", is_flag=True, help="Also write training dumps of the target, with shifted labels, for the tutorial."
)
def command(folder: Path, spoilt: bool, dumps: bool) -> int:
    """Unpack the tiny trained target, its EAGLE3 draft and prompts into FOLDER."""
    from sweeper.effects.requirements import require_torch
    from sweeper.errors import PreflightError
    from sweeper.toy import is_free, unpack

    if dumps:
        require_torch("sweeper toy --dumps")
    try:
        if not is_free(folder):
            raise PreflightError(f"{folder}: holds other files; name a new or empty folder, or one made by sweeper toy")
        pair = unpack(folder)
        if spoilt:
            from sweeper.toy.spoilt import write_spoilt

            for made in write_spoilt(pair.draft, folder / "spoilt"):
                click.echo(f"spoilt   {made}")
        if dumps:
            from sweeper.toy.dumps import write_dumps

            click.echo(f"dumps    {write_dumps(pair, folder / 'dumps')[0].parent}")
    except OSError as error:
        raise PreflightError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
    click.echo(f"target   {pair.target}\ndraft    {pair.draft}\nprompts  {pair.prompts}")
    return 0
