// Runs before the first paint: the theme that was chosen here or in the console, else that of the
// system.
try {
  const theme = localStorage.getItem('cove.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing shows the system's theme.
}
