// The example of the story, looked at in the token viewer: place and settings go into the address, where it finds them.
const about = document.querySelector("#story [data-look]");
if (about && byId("viewer")) {
  const open = make("button", { type: "button", textContent: "Look at it in the viewer" });
  open.addEventListener("click", () => {
    const address = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const [name, value] of new URLSearchParams(about.dataset.look)) address.set(name, value);
    if (location.hash === `#${address}`) goToSection("tokens");
    else location.hash = address;
  });
  about.append(" ", open);
}
