"""One module per Lambda function: parse the event, call shared, shape the answer."""
