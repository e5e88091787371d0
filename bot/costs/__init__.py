"""What model calls cost, and the budgets that limit them."""
