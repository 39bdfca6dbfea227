"""`leveret completion SHELL`: a script by which the shell asks `leveret` for completions.

The answers come from the parsers themselves; names of queues, exchanges and so on come from the node, if it answers
within half a second and no password has to be typed. On any failure there are no completions and no messages.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from leveret.server.cli.command_parser import Add, Environ
from leveret.server.cli.exit_codes import DONE, USAGE, failed

if TYPE_CHECKING:
    from leveret.server.cli.control_client import ControlClient

EXAMPLES: Final = """\
  bash:  source <(leveret completion bash)          in ~/.bashrc
  zsh:   source <(leveret completion zsh)           in ~/.zshrc, after compinit
  fish:  leveret completion fish | source           in ~/.config/fish/config.fish
"""
BASH: Final = """\
_leveret() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$(printf %q "$line")")
    done < <(leveret completion --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _leveret leveret
"""
ZSH: Final = """\
_leveret() {
    local -a found
    found=("${(@f)$(leveret completion -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
compdef _leveret leveret
"""
FISH: Final = """\
function __leveret_complete
    set -l words (commandline -opc) (commandline -ct)
    leveret completion -- $words[2..-1] 2>/dev/null
end
complete -c leveret -a '(__leveret_complete)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}

TIMEOUT_S: Final = 0.5  # the user waits for it
NAMES_MAX: Final = 200
BREAKS: Final = ":="  # bash begins a new word after these

# The section of the API with an argument's values: by the argument's name, or by the command and the argument.
BY_ARGUMENT: Final = {
    "vhost": "vhosts",
    "user": "users",
    "as_user": "users",
    "of_user": "users",
    "queue": "queues",
    "exchange": "exchanges",
    "source": "exchanges",
    "destination": "queues",
    "to": "queues",
}
BY_COMMAND: Final[Mapping[tuple[str, ...], str]] = {
    ("delete", "queue", "name"): "queues",
    ("delete", "exchange", "name"): "exchanges",
    ("delete", "vhost", "name"): "vhosts",
    ("delete", "user", "name"): "users",
    ("user", "password", "name"): "users",
    ("user", "tags", "name"): "users",
    ("user", "delete", "name"): "users",
    ("permission", "set", "name"): "users",
    ("permission", "clear", "name"): "users",
    ("policy", "set", "name"): "policies",
    ("policy", "clear", "name"): "policies",
    ("operator-policy", "set", "name"): "operator-policies",
    ("operator-policy", "clear", "name"): "operator-policies",
    ("forget-ids", "queue", "name"): "queues",
    ("forget-ids", "exchange", "name"): "exchanges",
    ("streams", "delete-super", "name"): "exchanges",
    ("shovel", "set", "name"): "shovels",
    ("shovel", "restart", "name"): "shovels",
    ("shovel", "delete", "name"): "shovels",
    ("renew", "channel"): "channels",
    ("close", "connection", "name"): "connections",
}
# Values that the parser does not restrict arguments to, because a node may have others.
WORDS: Final[Mapping[tuple[str, ...], Sequence[str]]] = {
    ("completion", "shell"): tuple(SCRIPTS),
    ("declare", "queue", "type"): ("classic", "quorum", "stream"),
    ("declare", "exchange", "type"): ("direct", "fanout", "headers", "topic"),
    ("policy", "set", "apply_to"): ("all", "queues", "exchanges"),
    ("operator-policy", "set", "apply_to"): ("queues",),
    ("user", "tags", "tags"): ("administrator", "management", "monitoring", "policymaker"),
    ("user", "add", "tags"): ("administrator", "management", "monitoring", "policymaker"),
}
OF_A_HOST: Final = frozenset({"queues", "exchanges", "policies", "operator-policies", "shovels"})

Names = Callable[[str, str], Sequence[str]]  # the section of the API and a prefix -> names


def add_completion(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parser.set_defaults(command=complete)
    parser.epilog = EXAMPLES
    parser.add_argument("shell", nargs="*", metavar="SHELL", help=", ".join(SCRIPTS))
    parser.add_argument("--line", help=argparse.SUPPRESS)


def complete(options: argparse.Namespace, environ: Environ) -> int:
    """Print the script of a shell or, called by such a script, the completions."""
    words: list[str] = options.shell
    if options.line is None and len(words) == 1 and words[0] in SCRIPTS:
        print(SCRIPTS[words[0]], end="")
        return DONE
    if options.line is not None:
        words = words_of(options.line)
    found = candidates(words or [""], environ)
    if options.line is None and len(words) == 1 and words[0] and not found:
        return failed(f"there is no script for '{words[0]}', only for {', '.join(SCRIPTS)}", USAGE)
    for each in found:
        print(each[cut(words[-1]) :] if options.line is not None else each)
    return DONE


def words_of(line: str) -> list[str]:
    """Return the words after `leveret` up to the cursor; the last one is being typed, and may be empty."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # a quotation is open: its content is the word
        words.append(lexer.token)
        return words[1:]
    return [*words[1:], ""] if not line or line[-1].isspace() else words[1:]


def cut(word: str) -> int:
    """Return the length of the part of the word that bash will not replace."""
    return max(word.rfind(each) for each in BREAKS) + 1


def candidates(words: Sequence[str], environ: Environ, names: Names | None = None) -> list[str]:
    """Return the completions of the last word."""
    from leveret.server.cli import commands as tree

    top = tree.CommandParser(environ)
    first = next((word for word in words[:-1] if not word.startswith("-")), None)
    if first in tree.OWN:
        top.add_own([str(first)])
    else:
        top.add_names()
    at = standing(top, words[:-1])
    source = names or (lambda section, prefix: of_node(section, prefix, at, environ))
    found = offered(at, words[-1], source)
    return sorted({each for each in found if each.startswith(words[-1]) and each.isprintable()})


@attrs.define
class Standing:
    """The cursor's position: the command, the arguments given so far, and the option whose value comes next."""

    parser: argparse.ArgumentParser
    command: list[str] = attrs.field(factory=list)
    said: dict[str, str] = attrs.field(factory=dict)
    valued: argparse.Action | None = None
    positionals: int = 0  # positional arguments given so far


def standing(top: argparse.ArgumentParser, words: Sequence[str]) -> Standing:
    """Parse the words before the cursor."""
    at = Standing(top)
    for word in words:
        if at.valued is not None:
            at.said[at.valued.dest] = word
            at.valued = None
        elif word.startswith("-") and len(word) > 1:
            _option(at, word)
        elif (actions := _commands(at.parser)) is not None and word in actions.choices:
            at.parser, at.positionals = actions.choices[word], 0
            at.command.append(word)
        else:
            positionals = [each for each in at.parser._actions if not each.option_strings]
            if at.positionals < len(positionals):
                at.said[positionals[at.positionals].dest] = word
            at.positionals += 1
    return at


def _option(at: Standing, word: str) -> None:
    name, given, value = word.partition("=")
    action = at.parser._option_string_actions.get(name)
    if action is None or action.nargs == 0:
        return
    if given:
        at.said[action.dest] = value
    else:
        at.valued = action


def _commands(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    return next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)


def offered(at: Standing, word: str, names: Names) -> Iterator[str]:
    if at.valued is not None:
        yield from _values(at, at.valued, word, names)
        return
    if word.startswith("-"):
        for action in at.parser._actions:
            if action.help != argparse.SUPPRESS:
                yield from action.option_strings
        return
    commands = _commands(at.parser)
    if commands is not None:
        yield from commands.choices
        return
    positionals = [each for each in at.parser._actions if not each.option_strings]
    if at.positionals < len(positionals):
        yield from _values(at, positionals[at.positionals], word, names)


def _values(at: Standing, action: argparse.Action, word: str, names: Names) -> Iterator[str]:
    if action.choices is not None:
        yield from map(str, action.choices)
        return
    yield from WORDS.get((*at.command, action.dest), ())
    yield from (f"{name}=" for name in _keys(at.command, action.dest))
    if at.command == ["list"] and action.dest in ("sort", "columns"):
        yield from _columns(at)
    section = BY_COMMAND.get((*at.command, action.dest)) or BY_ARGUMENT.get(action.dest)
    if action.dest == "destination" and at.said.get("to") == "exchange":
        section = "exchanges"
    if section is not None:
        yield from names(section, word)


def _keys(command: Sequence[str], argument: str) -> Iterable[str]:
    """Return the names that an argument of the form NAME=VALUE can have."""
    if argument == "set" and command[:1] == ["policy"]:
        from leveret.arguments.policy_keys import POLICY_KEYS

        return POLICY_KEYS
    if argument == "set" and command[:1] == ["operator-policy"]:
        from leveret.arguments.policy_keys import OPERATOR_KEYS

        return OPERATOR_KEYS
    if argument == "argument" and list(command) == ["declare", "queue"]:
        from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS

        return QUEUE_ARGUMENTS
    if argument == "argument" and list(command) == ["declare", "exchange"]:
        from leveret.arguments.exchange_arguments import EXCHANGE_ARGUMENTS

        return EXCHANGE_ARGUMENTS
    if argument == "property":
        from leveret.server.cli.messages import PROPERTIES

        return PROPERTIES
    return ()


def _columns(at: Standing) -> Sequence[str]:
    """Return the columns that a list shows by default."""
    from leveret.server.cli.lists import THINGS

    what = at.said.get("what", "")
    return THINGS[what][1] if what in THINGS else ()


def of_node(section: str, prefix: str, at: Standing, environ: Environ) -> list[str]:
    """Return the node's names with a prefix; none if it does not answer."""
    from leveret.server.cli.api import Refused, path, rows_of
    from leveret.server.cli.control_client import Unreachable

    client = quiet_client(at.said, environ)
    if client is None:
        return []
    host = [at.said.get("vhost", "/")] if section in OF_A_HOST else []
    try:
        rows = rows_of(_asked(client, path(section, *host), section, prefix))
    except (Unreachable, Refused, OSError, ValueError):
        return []
    return [name for row in rows if isinstance(name := row.get("name"), str) and name][:NAMES_MAX]


def _asked(client: ControlClient, where: str, section: str, prefix: str) -> object:
    """Request names: one page of those with the prefix where there may be many, otherwise the whole list."""
    import re
    from urllib.parse import urlencode

    query = {
        "columns": "name",
        "page": "1",
        "page_size": str(NAMES_MAX),
        "name": f"^{re.escape(prefix)}",
        "use_regex": "true",
    }
    paged = section in ("queues", "exchanges", "connections", "channels")
    answer = client.ask("GET", f"{where}?{urlencode(query)}" if paged else where, TIMEOUT_S)
    return [] if answer.refused else answer.content


def quiet_client(fields: Mapping[str, str], environ: Environ) -> ControlClient | None:
    """Return a client for the node, or None if that would take a prompt for a password."""
    from pathlib import Path

    from leveret.server.cli.control_client import ControlClient

    user = fields.get("user") or environ.get("LEVERET_USER") or "guest"
    url = fields.get("url") or environ.get("LEVERET_URL") or "http://127.0.0.1:15672"
    if "password_file" in fields:
        try:
            return ControlClient(url, user, Path(fields["password_file"]).read_text().rstrip("\r\n"))
        except (OSError, ValueError):
            return None
    password = environ.get("LEVERET_PASSWORD") or ("guest" if user == "guest" else None)
    return None if password is None else ControlClient(url, user, password)


ADD: Final[Mapping[str, Add]] = {"completion": add_completion}
