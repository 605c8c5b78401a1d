/* Does nothing. Linked statically, so that what is timed is the way to main and back. */
int main(void) {
    return 0;
}
