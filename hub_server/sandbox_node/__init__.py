"""One machine's sandboxes: how they are made, driven, limited and destroyed, and the server that offers them."""
