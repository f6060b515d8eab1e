// Runs before anything is drawn, so that a chosen theme does not flash up in the other one.
(() => {
  const theme = localStorage.getItem("riglm.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
