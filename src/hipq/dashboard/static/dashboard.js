// What pages need beside htmx.
