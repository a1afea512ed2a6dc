"""Options that several verbs share. It may import no verb."""
