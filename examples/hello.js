console.log("hello from javascript", ...process.argv.slice(2));
