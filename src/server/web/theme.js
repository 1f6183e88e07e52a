// Runs before the page is drawn, and so is not a module: the colours that were chosen here last time.
try {
  const theme = localStorage.getItem("reseed.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is switched off: the system's colours are used.
}
