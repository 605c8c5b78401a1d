/* emit TEXT BYTES: writes exactly BYTES bytes, TEXT and a line end over and over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("usage: emit TEXT BYTES\n", stderr);
        return 2;
    }
    size_t length = strlen(argv[1]);
    size_t total = strtoul(argv[2], NULL, 10);
    char *out = malloc(total + 1);
    if (out == NULL) {
        return 3;
    }
    for (size_t i = 0; i < total; i++) {
        size_t at = i % (length + 1);
        out[i] = at == length ? '\n' : argv[1][at];
    }
    return fwrite(out, 1, total, stdout) == total && fflush(stdout) == 0 ? 0 : 4;
}
