public class Hello {
    public static void main(String[] args) {
        System.out.println(("hello from java " + String.join(" ", args)).trim());
    }
}
