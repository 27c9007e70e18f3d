"""Who is who: users, API keys, browser sessions and the login challenge."""
