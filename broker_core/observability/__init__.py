"""What people and their tools are told: what happens, what is counted, what was, what passes through."""
