// What a hostile Java program tries, told by its input.

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

public class Main {
    public static void main(String[] args) throws Exception {
        switch (new String(System.in.readAllBytes())) {
            case "children" -> children();
            case "busy" -> {
                for (int i = 0; i < 3; i++) new Thread(() -> { while (true); }).start();
                while (true);
            }
            case "threads" -> threads();
            case "heap" -> {
                var kept = new ArrayList<byte[]>();
                while (true) kept.add(new byte[16 << 20]);
            }
            case "sleep" -> Thread.sleep(100_000);
            case "flood" -> { for (byte[] text = new byte[65536]; ; ) System.out.write(text); }
            case "files" -> files();
            case "network" -> network();
            case "kill" -> {
                new ProcessBuilder("/bin/sh", "-c", "kill -KILL -1").start();
                Thread.sleep(100_000);
            }
            default -> throw new IllegalArgumentException();
        }
    }

    static void children() {
        var failed = false;
        for (int i = 0; i < 70; i++) {
            try {
                new ProcessBuilder("/bin/sleep", "77302").start();
            } catch (IOException | OutOfMemoryError e) {
                failed = true;
            }
        }
        System.out.println(failed ? "some failed" : "all started");
        Runtime.getRuntime().halt(0);
    }

    static void threads() {
        var failed = false;
        for (int i = 0; i < 100; i++) {
            var thread = new Thread(() -> {
                try {
                    Thread.sleep(100_000);
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
            });
            thread.setDaemon(true);
            try {
                thread.start();
            } catch (OutOfMemoryError e) {
                failed = true;
            }
        }
        System.out.println(failed ? "some failed" : "all started");
        Runtime.getRuntime().halt(0);
    }

    static void files() throws IOException {
        var read = "nothing";
        for (var path : List.of("@MARKER@", "/etc/shadow", "/proc/1/environ", "@DATA@/tokens")) {
            try {
                Files.readAllBytes(Path.of(path));
                read = path;
            } catch (IOException e) { }
        }
        System.out.println("read " + read);
        var written = "nothing";
        var targets = new ArrayList<Path>();
        for (var path : List.of("/x", "/usr/x", "/etc/x", "/opt/x", "/proc/x")) targets.add(Path.of(path));
        if (Files.isDirectory(Path.of("/opt/.cove"))) {
            try (var all = Files.walk(Path.of("/opt/.cove"))) {
                all.filter(Files::isRegularFile).forEach(targets::add);
            }
        }
        for (var path : targets) {
            try {
                Files.write(path, new byte[1], StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                written = path.toString();
            } catch (IOException e) { }
        }
        System.out.println("written " + written);
        for (var line : Files.readAllLines(Path.of("/proc/self/status"))) {
            var parts = line.split(":\\s*");
            if (List.of("NoNewPrivs", "Seccomp", "CapEff", "CapBnd").contains(parts[0]))
                System.out.println(parts[0] + " " + parts[1].replaceAll("^0+$", "0"));
        }
    }

    static void network() {
        for (var host : List.of("127.0.0.1", "192.0.2.1")) {
            try (var socket = new Socket()) {
                socket.connect(new InetSocketAddress(host, @PORT@), 1000);
                System.out.println(host + " ALLOWED");
            } catch (IOException e) {
                System.out.println(host + " refused");
            }
        }
    }
}
