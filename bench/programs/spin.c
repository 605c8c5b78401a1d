/* Uses CPU time until somebody stops it. */
int main(void) {
    for (volatile unsigned long n = 0;; n++) {
    }
}
