// The focus while a page is drawn again: it stays where it is, or goes on from the row that was removed.

export const rows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main [data-row]")]);

/** The element with the focus, its row, and all rows: before something is drawn. */
export function focusNow() {
  const element = /** @type {HTMLElement | null} */ (document.activeElement);
  const row = /** @type {HTMLElement | null} */ (element?.closest("main [data-row]") ?? null);
  return { element, row, all: row ? rows() : [] };
}

/** Give it back where drawing has taken it: a browser drops the focus of what it moves or removes. @param {ReturnType<typeof focusNow>} before */
export function refocus({ element, row, all }) {
  const now = document.activeElement;
  const isLost = !now || now === document.body || now.closest("dialog:not([open])");
  if (!element || element === document.body || !isLost) return;
  const at = row ? all.indexOf(row) : 0;
  const near = [...all.slice(at), ...all.slice(0, at).reverse()].find((one) => one.isConnected) ?? (row && rows()[at]);
  const next = element.isConnected ? element : near?.querySelector("a, button") ?? document.querySelector("main h1");
  /** @type {HTMLElement | null | undefined} */ (next)?.focus({ preventScroll: true });
}
