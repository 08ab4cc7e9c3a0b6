"""Run directories: where everything of a run is, and files that are whole or absent."""

from trimsft.runs.directory import RunDirectory, by_dotted_name, environment, find_weights, holder_of, locked
from trimsft.runs.files import JsonLines, fingerprint_file, fingerprint_folder, publish, refuse_links, sync, write_whole

__all__ = [
    "JsonLines", "RunDirectory", "by_dotted_name", "environment", "find_weights", "fingerprint_file",
    "fingerprint_folder", "holder_of", "locked", "publish", "refuse_links", "sync", "write_whole",
]  # fmt: skip
