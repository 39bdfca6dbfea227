"""Protocol records: tables that the front-ends of a protocol keep in a virtual host, and find again after a restart."""
