package monitor

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strings"
)

const cookieName = "hubstate_monitor"

// guard lets only those in who know the token, and sets the headers that keep a page from loading or leaking anything.
// Without a token only this machine is served, and only under a loopback name: a foreign site whose name resolves to
// 127.0.0.1 must not read the view through somebody's browser.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		switch {
		case s.cfg.PageToken == "" && !isLoopback(hostPort(r.Host)):
			http.Error(w, "this page has no token and answers under a loopback name only", http.StatusForbidden)
		case s.cfg.PageToken == "" || s.known(r):
			next.ServeHTTP(w, r)
		case r.Method == http.MethodPost && r.URL.Path == "/login":
			s.login(w, r)
		case strings.HasPrefix(r.URL.Path, "/api/"):
			http.Error(w, "a token is required", http.StatusUnauthorized)
		case r.URL.Path == "/style.css":
			next.ServeHTTP(w, r)
		default:
			s.ask(w, http.StatusUnauthorized)
		}
	})
}

func hostPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "80")
}

// known accepts the token as a bearer or its hash in the cookie: the browser never stores the token itself.
func (s *server) known(r *http.Request) bool {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(hash(token), hash(s.cfg.PageToken))
	}
	c, err := r.Cookie(cookieName)
	return err == nil && same(c.Value, hash(s.cfg.PageToken))
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	if !same(hash(r.PostFormValue("token")), hash(s.cfg.PageToken)) {
		s.ask(w, http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: hash(s.cfg.PageToken), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
	http.Redirect(w, r, target(r.PostFormValue("next")), http.StatusSeeOther)
}

// target allows only a path of this page.
func target(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(next, "//") {
		return "/"
	}
	return u.Path
}

func (s *server) ask(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	page, err := assets.ReadFile("assets/login.html")
	if err == nil {
		_, err = w.Write(page)
	}
	if err != nil {
		s.log.Debug("login page ended early", "error", err)
	}
}

func hash(token string) string {
	sum := sha256.Sum256([]byte("hubstate monitor page " + token))
	return hex.EncodeToString(sum[:])
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
