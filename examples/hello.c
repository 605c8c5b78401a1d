#include <stdio.h>

int main(int argc, char **argv) {
    printf("hello from c");
    for (int i = 1; i < argc; i++) printf(" %s", argv[i]);
    putchar('\n');
}
