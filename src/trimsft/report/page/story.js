// The example of the story, looked at in the token viewer: its place goes into the address, where the viewer finds it.
const about = document.querySelector("#story [data-at]");
if (about && byId("viewer")) {
  const open = make("button", { type: "button", textContent: "Look at it in the viewer" });
  open.addEventListener("click", () => {
    const address = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    address.set("t.at", about.dataset.at);
    if (location.hash === `#${address}`) goToSection("tokens");
    else location.hash = address;
  });
  about.append(" ", open);
}
