const language: string = "typescript";
console.log(`hello from ${language}`, ...process.argv.slice(2));
