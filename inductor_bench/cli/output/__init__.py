"""How a verb's answer reaches the terminal: console, presentation, the formats of results. It may import no verb."""
