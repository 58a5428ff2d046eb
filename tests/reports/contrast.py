"""The contrast of a page's text with its background, as the page itself computes it."""

from __future__ import annotations

# The contrast of an element's text with its background, as WCAG computes it.
CONTRAST = """
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const value = part / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (one) => {
  const colour = getComputedStyle(one).backgroundColor;
  return colour === "rgba(0, 0, 0, 0)" ? ground(one.parentElement) : colour;
};
const seen = [...document.querySelectorAll("td, th, p, dt, dd, summary b, a, .cell, button, label")];
return Math.min(...seen.filter((one) => one.checkVisibility() && one.textContent.trim()).map((one) => {
  const pair = [light(getComputedStyle(one).color), light(ground(one))].sort();
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}));
"""
