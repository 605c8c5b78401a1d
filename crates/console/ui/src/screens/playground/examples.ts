// Programs to start with: what works, and what is stopped.
import type { ExecutionRequest } from '../executions/types';

export interface Example { title: string; about: string; request: ExecutionRequest; input: 'terminal' | 'text' | 'tests' }

export const EXAMPLES: Example[] = [
  {
    title: 'Ask for a name',
    about: 'Python on a terminal: type while it runs',
    input: 'terminal',
    request: { language: 'python', source: "name = input('What is your name? ')\nprint(f'Hello, {name}!')\n" },
  },
  {
    title: 'Endless loop',
    about: 'stopped at its CPU time limit: TLE',
    input: 'text',
    request: { language: 'python', source: 'while True:\n    pass\n', limits: { cpu_ms: 1000 } },
  },
  {
    title: 'One gigabyte',
    about: 'stopped at its memory limit: MLE',
    input: 'text',
    request: {
      language: 'python', source: "print('taking 1 GiB', flush=True)\ndata = bytearray(1 << 30)\nprint('got it')\n",
      limits: { memory_bytes: 256 << 20 },
    },
  },
  {
    title: 'Fork bomb',
    about: 'no more processes than it may have',
    input: 'text',
    request: {
      language: 'python',
      source: "import os\n\ncount = 0\nwhile True:\n    try:\n        if os.fork() == 0:\n            while True:\n                pass\n        count += 1\n    except OSError as error:\n        print('no more after', count, 'children:', error)\n        break\n",
      limits: { processes: 32, cpu_ms: 2000 },
    },
  },
  {
    title: 'Reach the network',
    about: 'refused: there is none without a grant',
    input: 'text',
    request: {
      language: 'python',
      source: "import socket\n\ntry:\n    socket.create_connection(('192.0.2.1', 443), timeout=3)\nexcept OSError as error:\n    print('refused:', error)\n",
    },
  },
  {
    title: 'Sum, with test cases',
    about: 'C, judged by three test cases, one of them wrong',
    input: 'tests',
    request: {
      language: 'c',
      source: '#include <stdio.h>\n\nint main(void) {\n    long sum = 0, number;\n    while (scanf("%ld", &number) == 1) sum += number;\n    printf("%ld\\n", sum);\n}\n',
      tests: [
        { name: 'small', stdin: '1 2 3\n', expected: '6\n' },
        { name: 'empty', stdin: '', expected: '0\n' },
        { name: 'wrong on purpose', stdin: '20 22\n', expected: '43\n' },
      ],
    },
  },
  {
    title: 'A shell',
    about: 'Bash on a terminal, until you leave it',
    input: 'terminal',
    request: { language: 'bash', source: 'exec bash -i\n', limits: { wall_ms: 300_000 } },
  },
];

/** A first program for a language, where the editor is empty. */
export const FIRST: Record<string, string> = {
  python: "print('Hello')\n",
  javascript: "console.log('Hello');\n",
  typescript: "const greeting: string = 'Hello';\nconsole.log(greeting);\n",
  bash: "echo Hello\n",
  c: '#include <stdio.h>\n\nint main(void) {\n    puts("Hello");\n}\n',
  cpp: '#include <iostream>\n\nint main() {\n    std::cout << "Hello\\n";\n}\n',
  go: 'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println("Hello")\n}\n',
  rust: 'fn main() {\n    println!("Hello");\n}\n',
  java: 'public class Main {\n    public static void main(String[] arguments) {\n        System.out.println("Hello");\n    }\n}\n',
};
