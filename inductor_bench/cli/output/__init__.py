"""How a verb's answer reaches the terminal: console, presentation, the batch's screen. It may import no verb."""
