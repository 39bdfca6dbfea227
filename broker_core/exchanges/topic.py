"""The exchange type `topic` routes to the queues whose binding pattern matches the words of the routing key.

Keys and patterns are words separated by dots. In a pattern `*` stands for exactly one word and `#` for any number of
words, none included. The empty key has no words at all: `#` and the empty pattern match it, `*` does not. Every dot
separates words: `a.` is the word `a` and an empty word (S049, S050; as in RabbitMQ).

The patterns are kept in a trie with one node per word. Routing walks all matching paths at once, word by word, and
holds each node at most once per word, so that no combination of patterns and key costs more than (words of the key) x
(nodes that can still match). Patterns that cannot match are never looked at and cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message


class TrieNode:
    """A node of the trie: the words that may follow here, and the bindings whose pattern ends here."""

    __slots__ = ("any_word", "any_words", "destinations", "words")

    def __init__(self) -> None:
        self.words: dict[str, TrieNode] = {}
        self.any_word: TrieNode | None = None  # after `*`
        self.any_words: TrieNode | None = None  # after `#`
        self.destinations: dict[tuple[object, ...], Destination] = {}  # by the binding's identity

    @property
    def leads_on(self) -> bool:
        return bool(self.words) or self.any_word is not None or self.any_words is not None

    def after(self, word: str) -> TrieNode | None:
        """Return the node that a pattern's next word leads to."""
        if word == "*":
            return self.any_word
        return self.any_words if word == "#" else self.words.get(word)

    def attach(self, word: str, node: TrieNode | None) -> None:
        """Set the node that a pattern's next word leads to; None removes it."""
        if word == "*":
            self.any_word = node
        elif word == "#":
            self.any_words = node
        elif node is None:
            del self.words[word]
        else:
            self.words[word] = node


@mypyc_attr(allow_interpreted_subclasses=True)
class Topic(ExchangeType):
    name = "topic"
    description = "the queues whose binding pattern matches the words of the routing key"
    looks_at = LooksAt.KEY

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._root = TrieNode()

    def route(self, message: Message) -> Iterable[Destination]:
        return [
            destination
            for key in message.keys
            for node in matching(self._root, words_of(key))
            for destination in node.destinations.values()
        ]

    def bind(self, binding: Binding) -> None:
        node = self._root
        for word in words_of(binding.key):
            child = node.after(word)
            if child is None:
                child = TrieNode()
                node.attach(word, child)
            node = child
        node.destinations[binding.identity] = binding.destination

    def unbind(self, binding: Binding) -> None:
        node, path = self._root, []
        for word in words_of(binding.key):
            path.append((node, word))
            child = node.after(word)
            assert child is not None, f"{binding} was never bound"
            node = child
        del node.destinations[binding.identity]
        prune(node, path)


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


def matching(root: TrieNode, words: list[str]) -> Iterable[TrieNode]:
    """Return the nodes at which a pattern that matches `words` may end, each once."""
    found: dict[TrieNode, None] = {}
    here: dict[TrieNode, None] = {}
    enter(root, here, found)
    for word in words:
        before, here = here, {}
        for node in before:
            # only a node after `#` matches before the key has ended: it may take this word too
            if node in found:
                here[node] = None
            if (child := node.words.get(word)) is not None:
                enter(child, here, found)
            if node.any_word is not None:
                enter(node.any_word, here, found)
    return found | here


def enter(node: TrieNode, here: dict[TrieNode, None], found: dict[TrieNode, None]) -> None:
    """Add `node` to the nodes reached, and those behind every `#` that follows it, since `#` may take no word.

    A pattern that ends in `#` matches whatever the rest of the key is; its node is reached only if it leads on.
    """
    here[node] = None
    while node.any_words is not None:
        node = node.any_words
        found[node] = None
        if node.leads_on:
            here[node] = None


def prune(node: TrieNode, path: list[tuple[TrieNode, str]]) -> None:
    """Remove the nodes at the end of `path` that no binding needs any more."""
    while path and not node.destinations and not node.leads_on:
        node, word = path.pop()
        node.attach(word, None)
