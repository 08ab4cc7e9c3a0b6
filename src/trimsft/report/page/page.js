// What concerns the whole page: theme, links to sections, printing.
const root = document.documentElement;
const theme = document.getElementById("theme");
const themes = ["system", "light", "dark"];
theme.hidden = false;
theme.addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  theme.textContent = `Theme: ${next}`;
  document.dispatchEvent(new CustomEvent("trimsft:theme"));
});

// the address holds the state of the rooms, so links to sections scroll and leave it alone
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById(link.hash.slice(1)).scrollIntoView();
  });
}

window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
