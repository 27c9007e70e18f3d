"""The wire between the tool and a hub: models shared with the server, and the client."""
