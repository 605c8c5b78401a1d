echo hello from bash "$@"
