"""One file per command; each module here registers one."""
