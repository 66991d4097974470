package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sallyport.example/internal/fault"
)

// JSON reads a body of at most limit bytes whose media type must be JSON. It does not parse it. With optional, the body may be empty.
func JSON(w http.ResponseWriter, r *http.Request, limit int64, optional bool) ([]byte, error) {
	return body(w, r, "application/json", limit, optional)
}

// Form reads a form of at most limit bytes into r.PostForm. A field that is there twice could be read in two ways, and is refused.
func Form(w http.ResponseWriter, r *http.Request, limit int64) error {
	b, err := body(w, r, "application/x-www-form-urlencoded", limit, true)
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(b))
	if err != nil {
		return fault.Wrap(err, fault.RequestMalformed, "The form could not be read; nothing was done.").Try("Go back and send it again.")
	}
	for name, values := range form {
		if len(values) > 1 {
			return fault.New(fault.RequestMalformed, "The field is there more than once; nothing was done.").At(name)
		}
	}
	r.PostForm = form
	return nil
}

func body(w http.ResponseWriter, r *http.Request, media string, limit int64, optional bool) ([]byte, error) {
	b, err := read(w, r, limit)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		if r.Header.Get("Expect") == "" { // the answer would be lost if the connection were cut while the client still writes
			_, _ = io.CopyN(io.Discard, r.Body, 2*limit) // best effort, within the deadline for the body
		}
		return nil, WithStatus(http.StatusRequestEntityTooLarge, fault.New(fault.RequestMalformed, "A body has at most %d bytes here.", limit))
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.RequestMalformed, "The body could not be read to its end.")
	}
	if len(b) == 0 && optional {
		return nil, nil
	}
	if !isMedia(r.Header.Get("Content-Type"), media) {
		return nil, WithStatus(http.StatusUnsupportedMediaType, fault.New(fault.RequestMalformed, "The body must be %s, in UTF-8.", media).
			At("Content-Type").Try("Send Content-Type: %s, with no parameter but charset=utf-8.", media))
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, WithStatus(http.StatusUnsupportedMediaType, fault.New(fault.RequestMalformed, "The body must not be compressed.").At("Content-Encoding"))
	}
	return b, nil
}

// read reads the whole body within the deadline that Handler has set. It then removes the deadline, whose end would look as if the client had
// gone. Memory grows with the bytes that came, not with the announced length.
func read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	var b []byte
	var err error
	if n := r.ContentLength; n > 0 && n <= 64<<10 {
		b = make([]byte, n)
		_, err = io.ReadFull(in, b)
	} else {
		b, err = io.ReadAll(in)
	}
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // best effort: test recorders have none
	}
	return b, err
}

// isMedia tells whether a Content-Type is that media type, with no parameter but charset=utf-8.
func isMedia(contentType, media string) bool {
	if contentType == media {
		return true
	}
	is, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || is != media {
		return false
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}
