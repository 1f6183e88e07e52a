// Applies the last chosen theme. It must run before the page is drawn, so it is not a module.
try {
  const theme = localStorage.getItem("reseed.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is disabled: the system's colours apply.
}
