"""A contract for import-linter: a package may import the listed modules, the standard library and itself, nothing else.

import-linter can forbid a list; a new dependency is on no list, so here the list says what is allowed.
"""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyContract(Contract):
    """`source` with all below it imports only `allowed` (each with all below it) and the standard library."""

    source = fields.StringField()
    allowed = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect each direct import that is not allowed."""
        source = str(self.source)
        if source not in graph.modules:
            raise ValueError(f"{source} does not exist")
        allowed = {source, *(str(name) for name in self.allowed or ())}
        wrong = []
        for importer in sorted({source} | graph.find_descendants(source)):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if not is_allowed(imported, allowed):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    wrong.append((importer, imported, [detail["line_number"] for detail in details]))
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line an import."""
        for importer, imported, lines in check.metadata["wrong"]:
            output.print_error(f"{importer} imports {imported} (line {', '.join(map(str, lines))})", bold=False)


def is_allowed(imported: str, allowed: set[str]) -> bool:
    """Standard library, an allowed module, or something below one."""
    if imported.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(imported == name or imported.startswith(f"{name}.") for name in allowed)
