// What a Java program can do and ask, one case for each line of input that names it.

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.nio.charset.Charset;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;

public class Main {
    static int depth;

    static void deeper() {
        // On one line: which of them finds the stack full differs from run to run.
        depth++; deeper();
    }

    static String line() throws Exception {
        var line = new StringBuilder();
        for (int c; (c = System.in.read()) >= 0 && c != '\n'; ) line.append((char) c);
        return line.toString();
    }

    public static void main(String[] args) throws Exception {
        switch (line()) {
            case "hello" -> System.out.println("hello, \u00e9 \u4e16");
            case "nothing" -> { }
            case "errors" -> {
                System.err.println("e");
                System.out.print("no newline");
            }
            case "arguments" -> System.out.println(Arrays.toString(args));
            case "environment" -> System.out.println(System.getenv() + System.getenv("LANG"));
            case "properties" -> {
                var all = new TreeMap<Object, Object>(System.getProperties());
                all.forEach((key, value) -> System.out.println(key + "=" + value));
            }
            case "class path" -> {
                var loader = Main.class.getClassLoader();
                System.out.println(loader.getResource("Main.class") + " " + loader.getResource("x"));
                for (var roots = loader.getResources(""); roots.hasMoreElements(); )
                    System.out.println(roots.nextElement());
                for (var all = loader.getResources("META-INF/MANIFEST.MF"); all.hasMoreElements(); )
                    System.out.println(all.nextElement());
                System.out.println(Main.class.getProtectionDomain().getCodeSource());
                System.out.println(loader.getClass() + " " + loader.getName());
            }
            case "modules" -> {
                var names = new TreeSet<String>();
                ModuleLayer.boot().modules().forEach(module -> names.add(module.toString()));
                System.out.println(names + " " + Main.class.getModule());
            }
            case "threads" -> {
                var names = new TreeSet<String>();
                Thread.getAllStackTraces().keySet().forEach(t -> names.add(t + " " + t.isDaemon()));
                System.out.println(names + " " + Thread.currentThread().getId());
                System.out.println(Thread.activeCount() + " " + new Thread().getName());
            }
            case "stack" -> {
                new Throwable("here").printStackTrace();
                StackWalker.getInstance().forEach(System.out::println);
            }
            case "uncaught" -> throw new IllegalStateException("x", new RuntimeException("cause"));
            case "uncaught in a thread" -> {
                var thread = new Thread(() -> { throw new RuntimeException("in a thread"); }, "t");
                thread.start();
                thread.join();
                System.out.println("goes on");
            }
            case "exit" -> System.exit(7);
            case "exit of a hook" -> {
                Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("bye")));
                System.exit(300);
            }
            case "halt" -> Runtime.getRuntime().halt(9);
            case "a thread outlives main" -> new Thread(() -> {
                try {
                    Thread.sleep(50);
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
                System.out.println("late");
            }).start();
            case "stack overflow" -> deeper();
            case "stack overflow that is caught" -> {
                try {
                    deeper();
                } catch (StackOverflowError e) {
                    System.out.println(e + " " + (depth > 1000));
                }
            }
            case "no memory" -> {
                var kept = new HashMap<Integer, byte[]>();
                for (int i = 0; ; i++) kept.put(i, new byte[16 << 20]);
            }
            case "memory" -> System.out.println(Runtime.getRuntime().maxMemory());
            case "processors" -> System.out.println(Runtime.getRuntime().availableProcessors());
            case "input" -> {
                var reader = new BufferedReader(new InputStreamReader(System.in));
                System.out.println(reader.readLine() + "|" + reader.readLine() + "|" + reader.read());
            }
            case "scanner" -> {
                var scanner = new Scanner(System.in);
                System.out.println(scanner.nextInt() + scanner.nextInt() + scanner.next());
            }
            case "console" -> System.out.println(System.console() + " " + FileDescriptor.in.valid());
            case "encoding" -> System.out.println(Charset.defaultCharset());
            case "files" -> {
                Files.writeString(Path.of("x"), "y");
                try (var all = Files.list(Path.of("."))) {
                    System.out.println(all.map(Path::toString).sorted().toList());
                }
                System.out.println(Path.of("").toAbsolutePath());
            }
            case "pool" -> {
                var pool = Executors.newFixedThreadPool(4);
                var sum = pool.submit(() -> IntStream.range(0, 1000).parallel().sum());
                System.out.println(sum.get());
                pool.shutdown();
            }
            case "process" -> {
                var process = new ProcessBuilder("/bin/echo", "child").inheritIO().start();
                System.out.println(process.waitFor());
            }
            case "no such class" -> Class.forName("absent.Thing");
            case "reflection" -> System.out.println(Map.of(1, Arrays.toString(
                Arrays.stream(Main.class.getDeclaredFields()).toArray())));
            case "closed output" -> {
                System.out.close();
                System.out.println("x");
                System.err.println(System.out.checkError());
            }
            case "endless" -> { while (true) depth++; }
            default -> System.err.println("no such case");
        }
    }
}
