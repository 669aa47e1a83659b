"""What Meanwhile costs and how it scales, measured on one machine; figures are compared within one run only."""
