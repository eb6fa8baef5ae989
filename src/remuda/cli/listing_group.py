"""Commands that list unless told otherwise: ``remuda pools mac`` lists, ``remuda pools pause mac`` does something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LIST: Final = "list"


class ListingGroup(click.Group):
    """A group whose command ``list`` is meant when none is named. Said for things named like a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *self.get_help_option_names(ctx)}
        # While a shell asks how to go on, nothing is decided yet: a command or a name may follow.
        named = args[0] in known if args else ctx.resilient_parsing
        return super().parse_args(ctx, args if named else [LIST, *args])

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] [NAME]")
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS] NAME", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of the listing: they are what most come for."""
        child = click.Context(self.commands[LIST], info_name=LIST, parent=ctx)
        click.Command.format_options(child.command, child, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands, and what the listing takes."""
        listing = self.commands[LIST]
        child = listing.make_context(LIST, [], parent=ctx, resilient_parsing=True)
        if incomplete.startswith("-"):
            return listing.shell_complete(child, incomplete)
        names = [
            item
            for parameter in listing.params
            if isinstance(parameter, click.Argument)
            for item in parameter.shell_complete(child, incomplete)
        ]
        return [*super().shell_complete(ctx, incomplete), *names]
