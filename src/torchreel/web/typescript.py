"""The tables of a reel as types of TypeScript: `python -m torchreel.web.typescript >viewer/src/tables.ts`."""

from __future__ import annotations

import json

import pyarrow as pa

from torchreel.reel.tables import TABLES, Column, TableDefinition


def as_typescript() -> str:
    """The file viewer/src/tables.ts."""
    parts = ["/** The tables of a reel. Made by torchreel/web/typescript.py from reel/tables.py: do not edit. */"]
    parts += [_type(table) for table in TABLES.values()]
    parts.append("/** Each table: what a row is, and what each column means. */")
    parts.append(f"export const TABLES: Record<string, {{ row: string; columns: Record<string, string> }}> = {_all()};")
    return "\n\n".join(parts) + "\n"


def _type(table: TableDefinition) -> str:
    fields = "".join(f"  {json.dumps(column.name)}: {_kind(column)} | null;\n" for column in table.columns)
    return f"/** {table.row}. */\nexport type {_type_name(table.name)} = {{\n  process: number;\n{fields}}};"


def _type_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _kind(column: Column) -> str:
    if pa.types.is_boolean(column.type):
        return "boolean"
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return "number"
    return "number[]" if pa.types.is_list(column.type) else "string"


def _all() -> str:
    tables = {
        table.name: {"row": table.row, "columns": {column.name: column.meaning for column in table.columns}}
        for table in TABLES.values()
    }
    return json.dumps(tables, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    print(as_typescript(), end="")
