"""Array annotations are checked at run time in every test; each test starts from one thread state."""

from jaxtyping import install_import_hook

install_import_hook("spectrope", "beartype.beartype")
