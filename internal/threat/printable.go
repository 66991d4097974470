package threat

import "sallyport.example/internal/display"

// Printable is display.Line.
func Printable(s string, max int) string { return display.Line(s, max) }
