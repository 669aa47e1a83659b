"""What is done before a deployment: parameters are asked for and kept in samconfig.toml, and all is checked."""
