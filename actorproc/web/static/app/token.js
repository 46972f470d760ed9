// The token of the address, taken out of it before anything else runs: history, screenshots and copied links stay without it.
export const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token !== null) history.replaceState(null, "", location.pathname + location.search);
