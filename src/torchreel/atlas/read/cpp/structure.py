"""What C++ code declares, and where: a sweep over the nodes of its tree, with the scopes around each.

Where the parser gave up, it is asked again, from the next line that begins a declaration.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial

from tree_sitter import Node

from torchreel.atlas.read.cpp.code import Code
from torchreel.atlas.read.cpp.frames import Declared, Frame
from torchreel.atlas.read.cpp.names import Names, declarator, joined
from torchreel.atlas.read.cpp.tree import Found, parse
from torchreel.atlas.read.cpp.words import KEYWORD, Words

_CLASSES = ("class", "struct", "union")
_LOST_NAMESPACE = re.compile(r" *(?:inline )?namespace ([\w:]+) ?\{")
_WRAPPER = "struct x{"
"""Members of a class are parsed again within another one."""
_LONGEST_NAME = 1000
_SPECIFIERS = 16
"""Words before a name in which `static` and such are looked for."""
_KEYWORD = bytes((KEYWORD,))
_BINDING = ("[", "&[", "&&[")
"""How a structured binding begins, which declares more than one name."""
_AGAIN = 20
"""How often the parser is asked again, for one file."""


class Structure:
    """The declarations of a file."""

    def __init__(self, words: Words, code: Code) -> None:
        self._words = words
        self._code = code
        self._names = Names(words, code)
        self.declared: list[Declared] = []
        self.errors: list[tuple[int, int]] = []
        """Offsets, from and to, of what the parser did not understand."""
        self.frames: list[Frame] = []
        """Those with names of their own."""
        self.parameters: list[int] = []
        """Indices of the words that name parameters of what is only declared."""
        self.scopes: list[tuple[int, str]] = [(0, "")]
        """From which offset which scope holds."""
        self._kinds: dict[str, str] = {}
        """Of the classes and namespaces known so far."""
        self._lost: list[tuple[int, int, Frame]] = []
        """Errors outside of functions, and the frame around each."""
        found, seen = parse(code.text)
        self._sweep(found, Frame(None, 0, len(code.text) + 1, "namespace", ""))
        if seen < len(code.text):
            self.errors.append((seen, len(code.text)))
        self._look_again()
        self.scopes.sort(key=lambda row: row[0])
        self.declared.sort(key=lambda declared: declared.word)

    def functions(self) -> Iterator[tuple[int, int]]:
        """Functions, each from the word that is its name to the one behind it, in order."""
        for row in self.declared:
            if row.kind in ("function", "method"):
                yield row.word, self._code.word_from(row.end)

    def _sweep(self, found: list[Found], base: Frame) -> None:
        self._stack = stack = [base]
        for start, end, _, what, node in found:
            while stack[-1].end <= start:
                self._pop()
            _READERS[what](self, start, -end, node)
        while len(stack) > 1:
            self._pop()

    def _look_again(self) -> None:
        """Parse what is left of the errors outside of functions, from their next line that begins a declaration."""
        code = self._code.text
        for _ in range(_AGAIN):
            if not self._lost:
                break
            start, end, frame = self._lost.pop(0)
            namespace = _LOST_NAMESPACE.match(code, start, end) if frame.context == "namespace" else None
            again = namespace.end() if namespace else self._next_declaration(start, end)
            if again < 0:
                continue
            inside = Frame(frame, again, end, frame.context, frame.scope)
            inside.class_name = frame.class_name
            if namespace:
                inside.scope = self._declare_lost(namespace.start(1), namespace.end(1), again, frame.scope)
                inside.namespace = inside.visible = inside.scope
            self._forget(again, end)
            wrapper = _WRAPPER if frame.context == "class" else ""
            found, _ = parse(" " * (again - len(wrapper)) + wrapper + code[again:end] + ("};" if wrapper else ""))
            self.scopes += ((again, inside.scope), (end, frame.scope))
            self._sweep([row for row in found if again <= row[0] < end], inside)

    def _next_declaration(self, start: int, end: int) -> int:
        """The offset of the next declaration after this error begins that begins a line, outside of brackets."""
        code, words = self._code, self._words
        depth, place = 0, start
        for word in range(code.word_at(start) + 1, len(words.words)):
            offset = code.starts[word]
            if offset >= end:
                break
            gap = code.text[place:offset]
            depth = max(depth + gap.count("{") - gap.count("}"), 0)
            if (
                depth == 0
                and gap.rstrip()[-1:] in (";", "}")
                and "\n" in words.gaps[word]
                and word not in code.left_out
            ):
                return offset
            place = offset
        return -1

    def _declare_lost(self, start: int, end: int, body: int, scope: str) -> str:
        """Add a namespace whose begin the parser did not see as one; the scope in it."""
        first, last = self._code.word_at(start), self._code.word_at(end - 1)
        parts = self._words.words[first : last + 1]
        outer = joined(scope, "::".join(parts[:-1]))
        self.declared.append(Declared(parts[-1], outer, "namespace", last, start, body - 1, body, False, outer))
        return joined(outer, parts[-1])

    def _forget(self, start: int, end: int) -> None:
        self.declared = [declared for declared in self.declared if not start <= declared.start < end]
        self.frames = [frame for frame in self.frames if not start <= frame.start < end]
        self.scopes = [row for row in self.scopes if not start <= row[0] <= end]
        self.errors = [row for row in self.errors if not start <= row[0] < end]

    def _push(self, frame: Frame, scope_from: int) -> None:
        if frame.scope != self._stack[-1].scope:
            self.scopes.append((scope_from, frame.scope))
        self._stack.append(frame)

    def _pop(self) -> None:
        frame = self._stack.pop()
        if frame.locals:
            self.frames.append(frame)
        if frame.scope != self._stack[-1].scope:
            self.scopes.append((frame.end, self._stack[-1].scope))

    def _add(
        self,
        kind: str,
        name: str,
        scope: str,
        word: int,
        start: int,
        head: int,
        end: int,
        declaration: bool = False,
        visible: str | None = None,
        function: Node | None = None,
    ) -> None:
        if len(name) > _LONGEST_NAME:
            return
        if self._stack[-1].template >= 0:
            start = self._stack[-1].template
        seen = scope if visible is None else visible
        self.declared.append(Declared(name, scope, kind, word, start, head, end, declaration, seen, function))

    def _read_namespace(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        scope = top.scope
        if named is not None and body is not None:
            first, last = self._code.word_at(named.start_byte), self._code.word_at(named.end_byte - 1)
            parts = [word for word in self._words.words[first : last + 1] if word != "inline"]
            outer = joined(scope, "::".join(parts[:-1]))
            self._add("namespace", parts[-1], outer, last, start, body.start_byte, end)
            scope = joined(outer, parts[-1])
            self._kinds[scope] = "namespace"
        self._push(Frame(top, start, end, "namespace", scope), start)

    def _read_class(self, start: int, end: int, node: Node, kind: str) -> None:
        top = self._stack[-1]
        named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if named is None or named.is_missing:
            if body is not None:
                self._push(Frame(top, start, end, "class", joined(top.scope, self._typedef_name(node))), start)
            return
        if body is None and not self._is_forward(start, end):
            return
        name, scope, word = self._names.of(named, top.scope)
        self._add(
            kind, name, scope, word, start, end if body is None else body.start_byte, end, declaration=body is None
        )
        inside = joined(scope, name)
        self._kinds[inside] = kind
        if body is not None:
            frame = Frame(top, start, end, "class", inside)
            frame.class_name = name
            self._push(frame, self._code.starts[word])

    def _is_forward(self, start: int, end: int) -> bool:
        """Whether a class without a body is declared here, not only named."""
        code = self._code.text
        if code[end : end + 2].lstrip()[:1] != ";":
            return False
        before = code[max(start - 10, 0) : start].rstrip()
        return before[-1:] != "=" and not before.endswith("template")

    def _typedef_name(self, node: Node) -> str:
        """The name of a class that has one only by `typedef struct {...} name`."""
        outer = node.parent
        named = (
            outer.child_by_field_name("declarator") if outer is not None and outer.type == "type_definition" else None
        )
        if named is None or named.type != "type_identifier":
            return ""
        return self._words.words[self._code.word_at(named.start_byte)]

    def _read_enum(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        name, scope = "", top.scope
        if named is not None and not named.is_missing and (body is not None or self._is_forward(start, end)):
            name, scope, word = self._names.of(named, top.scope)
            head = end if body is None else body.start_byte
            self._add("enum", name, scope, word, start, head, end, declaration=body is None)
        if body is not None:
            frame = Frame(top, start, end, "enum", joined(scope, name))
            scoped = self._words.words[self._code.word_at(start) + 1] in ("class", "struct")
            frame.visible = frame.scope if scoped else scope
            self._push(frame, start)

    def _read_enumerator(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        word = self._code.word_at(start)
        self._add("enumerator", self._words.words[word], top.scope, word, start, end, end, visible=top.visible)

    def _read_function(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        declared = node.child_by_field_name("declarator")
        frame = Frame(top, start, end, "function", top.scope)
        frame.locals = set()
        scope_from = start
        if declared is not None and top.context in ("namespace", "class", "friend"):
            head = end if node.child_by_field_name("body") is None else declared.end_byte
            before = len(self.declared)
            self._declare(start, head, end, node, declared, False)
            if len(self.declared) > before and not top.friend:
                row = self.declared[-1]
                frame.scope = joined(row.scope, row.name)
                scope_from = self._code.starts[row.word]
        self._push(frame, scope_from)

    def _read_declaration(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        declarators = node.children_by_field_name("declarator")
        if top.context == "function":
            for declared in declarators:
                self._read_local(declared.start_byte, declared.end_byte, declared)
            return
        if top.context != "enum":
            for declared in declarators:
                self._declare(start, end - 1, end, node, declared, True)
        if self._code.text.find("{", start, end) < 0:
            return  # no place for names of its own, but those of parameters
        frame = Frame(top, start, end, "function", top.scope)
        frame.locals = set()
        self._push(frame, start)

    def _declare(self, start: int, head: int, end: int, node: Node, part: Node, declaration: bool) -> None:
        """Add what a declarator declares."""
        top = self._stack[-1]
        found = declarator(part)
        if found is None:
            return
        around = top.namespace if top.friend else top.scope
        name, scope, word = self._names.of(found.named, around)
        typed = node.child_by_field_name("type")
        if typed is None and not name.startswith(("~", "operator")) and name != scope.rpartition("::")[2]:
            return  # neither a destructor, a conversion nor a constructor: a call of a macro
        if typed is not None and self._code.text.endswith("::operator", start, typed.end_byte):
            # With `inline` before it, the parser takes `X::operator T()` for a function T that returns an operator.
            _, scope, word = self._names.of(typed, around)
            name = f"operator {name}"
        in_class = top.context == "class"
        if found.function is not None:
            kind = "method" if in_class or (scope != around and self._is_class(scope)) else "function"
            self._add(kind, name, scope, word, start, head, end, declaration=declaration, function=found.function)
            return
        first = self._code.word_at(start)
        before = self._words.words[first : min(word, first + _SPECIFIERS)]
        shared = "static" in before or "constexpr" in before
        kind = "field" if in_class and not shared else "variable"
        self._add(kind, name, scope, word, start, head, end, declaration="extern" in before)

    def _is_class(self, scope: str) -> bool:
        """Whether the scope of a function defined outside of it is a class, not a namespace. The file may know; if not,
        its case tells: a namespace is in lower case."""
        kind = self._kinds.get(scope)
        return kind != "namespace" if kind else not scope.rpartition("::")[2].islower()

    def _read_typedef(self, start: int, end: int, node: Node) -> None:
        for part in node.children_by_field_name("declarator"):
            found = declarator(part)
            if found is None:
                continue
            if self._stack[-1].context == "function":
                self._read_local(found.named.start_byte, found.named.end_byte, found.named)
            else:
                name, scope, word = self._names.of(found.named, self._stack[-1].scope)
                self._add("alias", name, scope, word, start, end - 1, end)

    def _read_alias(self, start: int, end: int, node: Node, kind: str = "alias") -> None:
        named = node.child_by_field_name("name")
        if named is None:
            return
        if self._stack[-1].context == "function":
            self._read_local(named.start_byte, named.end_byte, named)
        else:
            word = self._code.word_at(named.start_byte)
            self._add(kind, self._words.words[word], self._stack[-1].scope, word, start, end - 1, end)

    def _read_using(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        named = node.named_children[-1] if node.named_child_count else None
        keyword = self._words.words[self._code.word_at(start) + 1]
        if named is not None and top.context != "function" and keyword not in ("namespace", "enum"):
            name, _, word = self._names.of(named, "")
            self._add("using", name, top.scope, word, start, end - 1, end)

    def _read_template(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        frame = Frame(top, start, end, top.context, top.scope)
        frame.namespace, frame.class_name, frame.visible, frame.friend = (
            top.namespace,
            top.class_name,
            top.visible,
            top.friend,
        )
        frame.locals = set()
        frame.template = top.template if top.template >= 0 else start
        self._push(frame, start)

    def _read_friend(self, start: int, end: int, node: Node) -> None:
        top = self._stack[-1]
        frame = Frame(top, start, end, "friend", top.scope)
        frame.friend = True
        frame.template = top.template if top.template >= 0 else start
        self._push(frame, start)

    def _read_error(self, start: int, end: int, node: Node) -> None:
        if self.errors and start < self.errors[-1][1]:
            return  # within another one
        self.errors.append((start, end))
        if self._stack[-1].context in ("namespace", "class"):
            self._lost.append((start, end, self._stack[-1]))

    def _read_local(self, start: int, end: int, node: Node) -> None:
        words, code = self._words, self._code
        word = bisect_left(code.starts, start)
        while words.kinds[word : word + 1] == _KEYWORD or word in code.left_out:
            word += 1
        names = words.words[word : word + 1]
        if code.text[start] in "[&" and code.text.startswith(_BINDING, start):
            names = words.words[word : code.word_at(code.text.find("]", start)) + 1]
        for frame in reversed(self._stack):
            if frame.locals is not None:
                frame.locals.update(names)
                return
        if names:
            self.parameters.append(word)


_READERS: dict[str, Callable[[Structure, int, int, Node], None]] = {
    "namespace": Structure._read_namespace,
    "class": partial(Structure._read_class, kind="class"),
    "struct": partial(Structure._read_class, kind="struct"),
    "union": partial(Structure._read_class, kind="union"),
    "enum": Structure._read_enum,
    "enumerator": Structure._read_enumerator,
    "function": Structure._read_function,
    "declaration": Structure._read_declaration,
    "typedef": Structure._read_typedef,
    "alias": Structure._read_alias,
    "concept": partial(Structure._read_alias, kind="concept"),
    "using": Structure._read_using,
    "template": Structure._read_template,
    "friend": Structure._read_friend,
    "error": Structure._read_error,
    "local": Structure._read_local,
}
"""By the names in the query."""
